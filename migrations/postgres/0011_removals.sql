-- In which version an object was removed last: whoever changes it without knowing is told by whom, and when.
CREATE TABLE policy_removals (
    domain  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    version BIGINT NOT NULL REFERENCES policy_versions (version),
    PRIMARY KEY (domain, kind, id)
);
