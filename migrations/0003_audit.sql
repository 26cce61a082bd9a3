-- Who did what, and whose sign-in was refused. Rows are only ever added.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      TEXT NOT NULL, -- RFC 3339
    actor   TEXT NOT NULL,
    address TEXT NOT NULL, -- of the connection; empty for the server itself
    action  TEXT NOT NULL, -- such as policy.publish
    object  TEXT NOT NULL,
    result  TEXT NOT NULL  -- done, or why it was refused
) STRICT;

CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;

CREATE TRIGGER audit_remains BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
