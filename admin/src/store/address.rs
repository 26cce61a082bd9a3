//! The address of a `PostgreSQL` database. It holds a password, so nothing here shows the whole of it.

use std::{fmt, str::FromStr};

use sqlx::{any::AnyConnectOptions, postgres::PgConnectOptions};

/// What may stand after the `?`.
const PARAMETERS: [&str; 13] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Where a `PostgreSQL` database is, such as `postgres://USER:PASSWORD@HOST/NAME`. Printed without what is secret; whether it
/// can be an address is seen when a server opens it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

/// An address that was understood.
pub(super) struct Address {
    pub(super) any: AnyConnectOptions,
    pub(super) postgres: PgConnectOptions,
    /// Without what is secret.
    pub(super) name: String,
}

impl DatabaseUrl {
    /// An address as somebody wrote it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What is wrong with it is said without repeating any of it but the scheme.
    pub(super) fn parse(&self) -> Result<Address, String> {
        const HOW: &str = "write postgres://USER:PASSWORD@HOST/NAME";
        let Some((scheme, _)) = self.0.split_once("://") else {
            return Err(format!("it is no address; {HOW}"));
        };
        match scheme {
            "postgres" | "postgresql" => {}
            "sqlite" => return Err("SQLite needs no address: its database is in the folder of --data".to_owned()),
            _ if !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                return Err(format!(
                    "`{scheme}` is not known; {HOW}, or none at all for SQLite in the folder of --data"
                ));
            }
            _ => return Err(format!("it is no address; {HOW}")),
        }
        let any = AnyConnectOptions::from_str(&self.0).map_err(|_| {
            format!("it is no address; {HOW}, with characters such as @ / # % of a password as %40 %2F %23 %25")
        })?;
        let url = &any.database_url;
        if let Some((unknown, _)) = url.query_pairs().find(|(key, _)| !PARAMETERS.contains(&&**key)) {
            return Err(format!("`{unknown}` is not known; after the ? there may be {}", PARAMETERS.join(", ")));
        }
        let postgres = PgConnectOptions::from_str(&self.0).map_err(|_| {
            "what stands after the ? has a value that does not fit; sslmode is disable, allow, prefer, require, \
                          verify-ca or verify-full, port a number"
                .to_owned()
        })?;
        let mut name = url.clone();
        // An address with a host can lose its password.
        let _ = name.set_password(None);
        name.set_query(None);
        name.set_fragment(None);
        Ok(Address { name: name.to_string(), postgres, any })
    }

    /// Without what is secret.
    fn shown(&self) -> String {
        self.parse().map_or_else(|_| "an address".to_owned(), |address| address.name)
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({})", self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2";

    #[test]
    fn what_is_secret_is_never_shown() {
        for text in [
            "postgres://ana:hunter2@db.example:5432/tide?sslmode=require",
            "postgresql://ana@db.example/tide?password=hunter2",
            "postgres:///tide?host=/run/postgresql&user=ana&password=hunter2#hunter2",
            "postgres://ana:hunter2@db.example:x/tide",
            "postgres://ana:hun#ter2hunter2@db.example/tide",
            "postgres://ana:hunter2@db.example/tide?sslmode=hunter2",
            "postgres://ana:hunter2@db.example/tide?pasword=hunter2",
            "mysql://ana:hunter2@db.example/tide",
            "hunter2",
            "ana:hunter2@db.example://",
        ] {
            let url = DatabaseUrl::new(text);
            let mut said = format!("{url} {url:?}");
            if let Err(why) = url.parse() {
                said.push_str(&why);
            }
            assert!(!said.contains(SECRET), "{text}: {said}");
        }
        assert_eq!(
            DatabaseUrl::new("postgres://ana:hunter2@db.example:5433/tide?sslmode=require").to_string(),
            "postgres://ana@db.example:5433/tide"
        );
    }

    #[test]
    fn what_is_no_address_is_refused_in_words() {
        for (text, words) in [
            ("tide", "postgres://USER"),
            ("mysql://db/tide", "`mysql` is not known"),
            ("sqlite:///tmp/x.db", "--data"),
            ("postgres://ana:p#w@db/tide", "%23"),
            ("postgres://ana@db/tide?pasword=x", "`pasword`"),
            ("postgres://ana@db/tide?sslmode=loud", "sslmode"),
        ] {
            let why = DatabaseUrl::new(text).parse().err().expect("it is refused");
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
