-- What identities are hashed with where nobody shall read them, so that all servers of a database show the same for one.
CREATE TABLE secrets (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL -- base64url
);
