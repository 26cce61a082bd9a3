-- Change lists that somebody shares before they are published.
CREATE TABLE drafts (
    id       TEXT COLLATE "C" PRIMARY KEY, -- random
    author   TEXT NOT NULL,
    message  TEXT NOT NULL, -- of the list
    list     TEXT NOT NULL, -- JSON
    saved_at TEXT COLLATE "C" NOT NULL, -- RFC 3339 to the second in UTC, so that later is greater; ends_at too
    ends_at  TEXT COLLATE "C" NOT NULL
);
