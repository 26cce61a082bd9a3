-- What each version changed, by the names of the audit log. Of versions of before that is what the log has: the first hundred
-- objects of each, and of some none.
CREATE TABLE version_objects (
    version INTEGER NOT NULL REFERENCES policy_versions (version),
    place   INTEGER NOT NULL, -- those that it removed come last
    object  TEXT NOT NULL,    -- such as tier:pro
    removed INTEGER NOT NULL, -- 1 or 0
    PRIMARY KEY (version, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX version_objects_by_object ON version_objects (object, version);

INSERT INTO version_objects (version, place, object, removed)
SELECT CAST(substr(result, 9) AS INTEGER), row_number() OVER (PARTITION BY result ORDER BY id) - 1, object,
       action = 'object.remove'
FROM audit WHERE action IN ('object.change', 'object.remove') AND result LIKE 'version:%'
    AND CAST(substr(result, 9) AS INTEGER) IN (SELECT version FROM policy_versions);

-- How many they are; NULL: it is not known. This build writes it with each version that it publishes.
ALTER TABLE policy_versions ADD COLUMN objects INTEGER;
DROP TRIGGER policy_versions_stay;
UPDATE policy_versions SET objects = (SELECT nullif(count(*), 0) FROM version_objects AS changed
                                      WHERE changed.version = policy_versions.version)
WHERE version NOT IN (SELECT version FROM version_objects WHERE place = 99);
CREATE TRIGGER policy_versions_stay BEFORE UPDATE ON policy_versions
BEGIN SELECT RAISE(ABORT, 'a published version never changes'); END;
