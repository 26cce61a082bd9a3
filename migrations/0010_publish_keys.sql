-- Since when a repeat is known; it is forgotten after a week.
ALTER TABLE publish_keys ADD COLUMN at INTEGER NOT NULL DEFAULT 0; -- Unix seconds
UPDATE publish_keys SET at = unixepoch();

CREATE INDEX publish_keys_by_at ON publish_keys (at);
