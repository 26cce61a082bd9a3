-- How often a user was signed out everywhere: browsers that signed in before are known until then, or until another password.
ALTER TABLE users ADD COLUMN sign_outs BIGINT NOT NULL DEFAULT 0;
