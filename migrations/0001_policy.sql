-- What was published. A version is written once and never changed; revisions say in which version each object of the
-- policy changed last.
PRAGMA application_id = 1414087751; -- "TIDG": this file is Tidegate's

CREATE TABLE policy_versions (
    version      INTEGER PRIMARY KEY,
    document     TEXT NOT NULL, -- the whole policy, JSON
    sha256       TEXT NOT NULL, -- of the document, hex
    author       TEXT NOT NULL,
    message      TEXT NOT NULL,
    published_at TEXT NOT NULL  -- RFC 3339
) STRICT;

CREATE TRIGGER policy_versions_stay BEFORE UPDATE ON policy_versions
BEGIN SELECT RAISE(ABORT, 'a published version never changes'); END;

CREATE TRIGGER policy_versions_remain BEFORE DELETE ON policy_versions
BEGIN SELECT RAISE(ABORT, 'a published version is never deleted'); END;

CREATE TABLE policy_revisions (
    domain  TEXT NOT NULL,
    kind    TEXT NOT NULL, -- tier or rule
    id      TEXT NOT NULL,
    version INTEGER NOT NULL REFERENCES policy_versions (version),
    PRIMARY KEY (domain, kind, id)
) STRICT, WITHOUT ROWID;

-- One row for each publish that named a key, so that a repeat is answered and not published again.
CREATE TABLE publish_keys (
    user           TEXT NOT NULL,
    key            TEXT NOT NULL,
    request_sha256 TEXT NOT NULL,
    answer         TEXT NOT NULL, -- JSON
    version        INTEGER NOT NULL REFERENCES policy_versions (version),
    PRIMARY KEY (user, key)
) STRICT, WITHOUT ROWID;
