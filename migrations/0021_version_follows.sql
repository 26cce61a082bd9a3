-- The version that each was made on; NULL: the one before it, as all of older builds. A change that reaches every node while a
-- rollout is open makes two versions, one on top of each of the rollout's two.
ALTER TABLE policy_versions ADD COLUMN follows INTEGER;
