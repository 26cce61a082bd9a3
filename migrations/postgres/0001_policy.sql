-- What was published. A version is written once and never changed; revisions say in which version each object of the
-- policy changed last. Texts by which rows are found or ordered compare by their bytes ("C"), as they do in SQLite.
CREATE TABLE policy_versions (
    version      BIGINT PRIMARY KEY,
    document     TEXT NOT NULL, -- the whole policy, JSON
    sha256       TEXT NOT NULL, -- of the document, hex
    author       TEXT NOT NULL,
    message      TEXT NOT NULL,
    published_at TEXT NOT NULL  -- RFC 3339
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$;

CREATE TRIGGER policy_versions_stay BEFORE UPDATE ON policy_versions
    EXECUTE FUNCTION refuse_change('a published version never changes');

CREATE TRIGGER policy_versions_remain BEFORE DELETE OR TRUNCATE ON policy_versions
    EXECUTE FUNCTION refuse_change('a published version is never deleted');

CREATE TABLE policy_revisions (
    domain  TEXT COLLATE "C" NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL, -- tier or rule
    id      TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL REFERENCES policy_versions (version),
    PRIMARY KEY (domain, kind, id)
);

-- One row for each publish that named a key, so that a repeat is answered and not published again.
CREATE TABLE publish_keys (
    "user"         TEXT COLLATE "C" NOT NULL,
    key            TEXT COLLATE "C" NOT NULL,
    request_sha256 TEXT NOT NULL,
    answer         TEXT NOT NULL, -- JSON
    version        BIGINT NOT NULL REFERENCES policy_versions (version),
    PRIMARY KEY ("user", key)
);
