-- Who may what: rows of people that can be changed, sessions that can be listed, tokens of scripts and nodes.
ALTER TABLE users ADD COLUMN revision BIGINT NOT NULL DEFAULT 1;     -- grows with each change of the row
ALTER TABLE users ADD COLUMN last_seen_at BIGINT NOT NULL DEFAULT 0; -- Unix seconds; 0: never

-- Those of before are idle for ever: who has one signs in again.
ALTER TABLE sessions ADD COLUMN last_seen_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN browser TEXT NOT NULL DEFAULT ''; -- as it calls itself

CREATE INDEX sessions_by_user ON sessions (user_id);

CREATE TABLE tokens (
    id                TEXT COLLATE "C" PRIMARY KEY, -- random
    name              TEXT COLLATE "C" NOT NULL,
    sha256            TEXT COLLATE "C" NOT NULL UNIQUE,
    role              TEXT NOT NULL,   -- one of people's, or node
    kinds             TEXT NOT NULL,   -- of objects that it may change, with commas between them; empty: all
    made_by           TEXT COLLATE "C" NOT NULL,
    made_at           BIGINT NOT NULL, -- Unix seconds
    ends_at           BIGINT NOT NULL, -- 0: never
    last_used_at      BIGINT NOT NULL, -- 0: never
    last_used_address TEXT NOT NULL
);

CREATE INDEX audit_by_actor ON audit (actor, id);
CREATE INDEX audit_by_object ON audit (object, id);
