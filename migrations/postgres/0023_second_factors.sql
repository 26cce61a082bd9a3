-- Second factors of users who sign in by a password: the secret of an authenticator app (TOTP, RFC 6238). It is needed as it
-- is to tell which codes are right, so it cannot be stored as a hash.
CREATE TABLE second_factors (
    user_id   BIGINT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    secret    TEXT COLLATE "C" NOT NULL, -- base64url, of the app whose codes are asked for; empty: none is
    last_step BIGINT NOT NULL,           -- of the code that was taken last, 30 seconds each: no code is taken twice
    made_at   BIGINT NOT NULL,           -- Unix seconds
    begun     TEXT COLLATE "C" NOT NULL  -- base64url, of an app that has not shown a code yet; empty: none
);

-- Each signs its user in once without the app.
CREATE TABLE recovery_codes (
    user_id     BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    code_sha256 TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, code_sha256)
);
