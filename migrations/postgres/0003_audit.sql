-- Who did what, and whose sign-in was refused. Rows are only ever added.
CREATE TABLE audit (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      TEXT COLLATE "C" NOT NULL, -- RFC 3339
    actor   TEXT COLLATE "C" NOT NULL,
    address TEXT NOT NULL, -- of the connection; empty for the server itself
    action  TEXT COLLATE "C" NOT NULL, -- such as policy.publish
    object  TEXT COLLATE "C" NOT NULL,
    result  TEXT NOT NULL  -- done, or why it was refused
);

CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    EXECUTE FUNCTION refuse_change('the audit log is only added to');
