-- What was counted, by minute and hour and node. A limit is named once, and has its number in every row.
CREATE TABLE figure_limits (
    number  INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE, -- full name of the limit
    used_at INTEGER NOT NULL      -- Unix seconds of the last hour that has it
) STRICT;

CREATE TABLE figures (
    step INTEGER NOT NULL, -- 60 or 3600 seconds
    at   INTEGER NOT NULL, -- Unix seconds when it began
    node TEXT NOT NULL,
    data BLOB NOT NULL,    -- packed by the server: totals, latencies, and each limit that decided something
    PRIMARY KEY (step, at, node)
) STRICT;

-- That the database can be written is found out here.
CREATE TABLE tries (
    node TEXT PRIMARY KEY,
    at   INTEGER NOT NULL -- Unix seconds of the last one
) STRICT, WITHOUT ROWID;
