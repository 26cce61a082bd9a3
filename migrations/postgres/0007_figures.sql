-- What was counted, by minute and hour and node. A limit is named once, and has its number in every row.
CREATE TABLE figure_limits (
    number  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    TEXT COLLATE "C" NOT NULL UNIQUE, -- full name of the limit
    used_at BIGINT NOT NULL                   -- Unix seconds of the last hour that has it
);

CREATE TABLE figures (
    step BIGINT NOT NULL, -- 60 or 3600 seconds
    at   BIGINT NOT NULL, -- Unix seconds when it began
    node TEXT COLLATE "C" NOT NULL,
    data BYTEA NOT NULL,  -- packed by the server: totals, latencies, and each limit that decided something
    PRIMARY KEY (step, at, node)
);

-- That the database can be written is found out here.
CREATE TABLE tries (
    node TEXT COLLATE "C" PRIMARY KEY,
    at   BIGINT NOT NULL -- Unix seconds of the last one
);
