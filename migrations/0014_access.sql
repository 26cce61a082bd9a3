-- Names that mean one thing: no user has the server's, and a token's is given once, since what it did stays under it.
UPDATE tokens SET made_by = (SELECT 'tidegate-' || id FROM users WHERE name = 'tidegate')
WHERE made_by = 'tidegate' AND EXISTS (SELECT 1 FROM users WHERE name = 'tidegate');
UPDATE users SET name = 'tidegate-' || id, revision = revision + 1 WHERE name = 'tidegate';

CREATE TABLE token_names (
    name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO token_names SELECT name FROM tokens UNION SELECT substr(actor, 7) FROM audit WHERE actor LIKE 'token:%';

ALTER TABLE tokens ADD COLUMN replaced_at INTEGER NOT NULL DEFAULT 0; -- Unix seconds; 0: it was not

-- The audit log by what is looked for.
CREATE INDEX audit_by_action ON audit (action, id);
CREATE INDEX audit_by_at ON audit (at, id);
