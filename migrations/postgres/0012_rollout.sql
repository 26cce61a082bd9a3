-- A version that went to some nodes first, until it goes to all or is taken back: one at most.
CREATE TABLE rollout (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL REFERENCES policy_versions (version),
    keeps   BIGINT NOT NULL REFERENCES policy_versions (version), -- the version of all others
    nodes   TEXT NOT NULL, -- JSON, names
    author  TEXT NOT NULL,
    since   TEXT NOT NULL  -- RFC 3339
);

-- The nodes of every server, for the others. One that is gone is remembered for a day.
CREATE TABLE nodes (
    name         TEXT COLLATE "C" PRIMARY KEY,
    server       TEXT NOT NULL,   -- the one that it is or was connected to
    "schema"     BIGINT NOT NULL, -- the newest that it can read
    version      BIGINT NOT NULL, -- of the policy in force there; 0: none
    is_connected BIGINT NOT NULL, -- 1 or 0
    at           BIGINT NOT NULL  -- Unix seconds when the server was sure of it last
);
