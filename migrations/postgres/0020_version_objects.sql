-- What each version changed, by the names of the audit log. Of versions of before that is what the log has: the first hundred
-- objects of each, and of some none.
CREATE TABLE version_objects (
    version BIGINT NOT NULL REFERENCES policy_versions (version),
    place   BIGINT NOT NULL,           -- those that it removed come last
    object  TEXT COLLATE "C" NOT NULL, -- such as tier:pro
    removed BIGINT NOT NULL,           -- 1 or 0
    PRIMARY KEY (version, place)
);
CREATE INDEX version_objects_by_object ON version_objects (object, version);

INSERT INTO version_objects (version, place, object, removed)
SELECT CAST(substr(result, 9) AS BIGINT), row_number() OVER (PARTITION BY result ORDER BY id) - 1, object,
       CASE action WHEN 'object.remove' THEN 1 ELSE 0 END
FROM audit WHERE action IN ('object.change', 'object.remove') AND result LIKE 'version:%'
    AND substr(result, 9) IN (SELECT CAST(version AS TEXT) FROM policy_versions);

-- How many they are; NULL: it is not known. This build writes it with each version that it publishes.
ALTER TABLE policy_versions ADD COLUMN objects BIGINT;
DROP TRIGGER policy_versions_stay ON policy_versions;
UPDATE policy_versions SET objects = (SELECT nullif(count(*), 0) FROM version_objects AS changed
                                      WHERE changed.version = policy_versions.version)
WHERE version NOT IN (SELECT version FROM version_objects WHERE place = 99);
CREATE TRIGGER policy_versions_stay BEFORE UPDATE ON policy_versions
    EXECUTE FUNCTION refuse_change('a published version never changes');
