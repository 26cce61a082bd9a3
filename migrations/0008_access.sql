-- Who may what: rows of people that can be changed, sessions that can be listed, tokens of scripts and nodes.
ALTER TABLE users ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;     -- grows with each change of the row
ALTER TABLE users ADD COLUMN last_seen_at INTEGER NOT NULL DEFAULT 0; -- Unix seconds; 0: never

-- Those of before are idle for ever: who has one signs in again.
ALTER TABLE sessions ADD COLUMN last_seen_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN browser TEXT NOT NULL DEFAULT ''; -- as it calls itself

CREATE INDEX sessions_by_user ON sessions (user_id);

CREATE TABLE tokens (
    id                TEXT PRIMARY KEY, -- random
    name              TEXT NOT NULL,
    sha256            TEXT NOT NULL UNIQUE,
    role              TEXT NOT NULL,    -- one of people's, or node
    kinds             TEXT NOT NULL,    -- of objects that it may change, with commas between them; empty: all
    made_by           TEXT NOT NULL,
    made_at           INTEGER NOT NULL, -- Unix seconds
    ends_at           INTEGER NOT NULL, -- 0: never
    last_used_at      INTEGER NOT NULL, -- 0: never
    last_used_address TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A line that takes the place of another would be a change of it.
CREATE TRIGGER audit_adds BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;

CREATE INDEX audit_by_actor ON audit (actor, id);
CREATE INDEX audit_by_object ON audit (object, id);
