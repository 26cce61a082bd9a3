-- What was published last from each file of --policy: so that a start publishes what changed there, and nothing twice.
CREATE TABLE policy_files (
    name    TEXT COLLATE "C" PRIMARY KEY,
    sha256  TEXT NOT NULL, -- of the document that the file held
    version BIGINT NOT NULL REFERENCES policy_versions (version)
);
