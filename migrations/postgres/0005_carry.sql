-- What becomes of used quota in the limits whose numbers a version changes, for whoever follows it.
ALTER TABLE policy_versions ADD COLUMN carry TEXT NOT NULL DEFAULT '{}'; -- JSON, by full name of the limit
