-- Who may sign in, and who is signed in. Secrets are stored as hashes only.
CREATE TABLE users (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          TEXT COLLATE "C" NOT NULL UNIQUE,
    role          TEXT NOT NULL,
    password_hash TEXT NOT NULL, -- argon2id, PHC string
    created_at    BIGINT NOT NULL -- Unix seconds
);

CREATE TABLE sessions (
    token_sha256 TEXT COLLATE "C" PRIMARY KEY,
    user_id      BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    csrf         TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
);

CREATE INDEX sessions_by_end ON sessions (expires_at);
