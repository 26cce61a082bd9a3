-- What a sign-in by the provider needs is with its browser. Here stands which of them began a session: none does so twice.
DROP TABLE sign_ins;

CREATE TABLE used_sign_ins (
    state_sha256 TEXT PRIMARY KEY,
    ends_at      INTEGER NOT NULL -- Unix seconds; from then on its cookie is too old
) STRICT, WITHOUT ROWID;
