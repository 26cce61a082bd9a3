-- Who may sign in, and who is signed in. Secrets are stored as hashes only.
CREATE TABLE users (
    id            INTEGER PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    role          TEXT NOT NULL,
    password_hash TEXT NOT NULL, -- argon2id, PHC string
    created_at    INTEGER NOT NULL -- Unix seconds
) STRICT;

CREATE TABLE sessions (
    token_sha256 TEXT PRIMARY KEY,
    user_id      INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    csrf         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_end ON sessions (expires_at);
