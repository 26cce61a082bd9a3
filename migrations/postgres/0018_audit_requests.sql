-- Which request a line is about, as its answer said (X-Request-Id); lines of before have none.
ALTER TABLE audit ADD COLUMN request_id TEXT COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX audit_by_request ON audit (request_id, id) WHERE request_id <> '';
