-- Who signs in by a provider (OpenID Connect) is known by what it calls him, and has no password (an empty hash).
ALTER TABLE users ADD COLUMN issuer TEXT COLLATE "C" NOT NULL DEFAULT '';  -- empty: he signs in by a password
ALTER TABLE users ADD COLUMN subject TEXT COLLATE "C" NOT NULL DEFAULT '';

CREATE UNIQUE INDEX users_by_subject ON users (issuer, subject) WHERE issuer <> '';

-- Who went to the provider and is not back yet. In here, so that he may come back to another server.
CREATE TABLE sign_ins (
    state_sha256   TEXT COLLATE "C" PRIMARY KEY, -- of what comes back in the address
    browser_sha256 TEXT NOT NULL,                -- of the cookie
    nonce          TEXT NOT NULL,                -- what the ID token has to carry
    verifier       TEXT NOT NULL,                -- PKCE: of no use without the code and the client's secret
    return_to      TEXT NOT NULL,                -- a path of the dashboard
    ends_at        BIGINT NOT NULL               -- Unix seconds
);
