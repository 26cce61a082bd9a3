-- Since when a repeat is known; it is forgotten after a week.
ALTER TABLE publish_keys ADD COLUMN at BIGINT NOT NULL DEFAULT 0; -- Unix seconds
UPDATE publish_keys SET at = CAST(extract(epoch FROM now()) AS BIGINT);

CREATE INDEX publish_keys_by_at ON publish_keys (at);
