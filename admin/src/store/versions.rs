//! Published versions of the policy, and in which of them each object changed last.

use std::collections::HashMap;

use sqlx::{
    Any, AnyConnection, AssertSqlSafe, FromRow, Row, any::AnyArguments, query, query::Query, query_as, query_scalar,
};
use tidegate::algorithm::Carry;

use crate::{
    base::secrets::now,
    domain::version::{Carries, Rollout, Version},
    store::{
        audit::Audit,
        database::{Change, Store, pattern},
    },
};

/// In which version an object changed last.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Revision {
    pub(crate) domain: String,
    pub(crate) kind: String,
    pub(crate) id: String,
    #[sqlx(try_from = "i64")]
    pub(crate) version: u64,
    pub(crate) author: String,
    pub(crate) published_at: String,
}

/// What a publish writes, all of it or nothing.
#[derive(Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) version: &'a Version,
    pub(crate) document: &'a str,
    /// The same change for the nodes that keep the version before, if it goes to all while a rollout is open.
    pub(crate) kept: Option<KeptVersion<'a>>,
    /// Domain, kind and id of the objects that it changes.
    pub(crate) touched: &'a [(&'a str, &'a str, &'a str)],
    /// Those that it removes.
    pub(crate) removed: &'a [(&'a str, &'a str, &'a str)],
    /// The names of both, those that it removes last.
    pub(crate) objects: &'a [String],
    /// The key by which a repeat is known, digest of the request, and the answer to a repeat.
    pub(crate) answered: Option<(&'a str, &'a Answered)>,
    /// Name of the file that it comes from.
    pub(crate) file: Option<&'a str>,
    /// If it goes to some nodes first.
    pub(crate) rollout: Option<&'a Rollout>,
    pub(crate) audit: &'a [Audit<'a>],
}

/// A version for the nodes that keep the one before the newest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptVersion<'a> {
    pub(crate) version: &'a Version,
    pub(crate) document: &'a str,
    /// Names of the objects that it changes, those that it removes last.
    pub(crate) objects: &'a [String],
    /// How many of these are there.
    pub(crate) touched: usize,
}

/// The objects that a version changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct VersionObjects {
    /// `None`: it is not known.
    pub(crate) count: Option<u64>,
    /// Names of the first ones, and whether they were removed.
    pub(crate) first: Vec<(String, bool)>,
}

/// Which versions are looked for; what is empty does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoughtVersions<'a> {
    /// What the author or the message is like.
    pub(crate) pattern: &'a str,
    /// Of this second and later.
    pub(crate) from: &'a str,
    /// Of before this second.
    pub(crate) to: &'a str,
    /// The name of an object that they changed.
    pub(crate) object: &'a str,
}

impl SoughtVersions<'_> {
    /// Are many more versions read for it than it finds? Without a filter, none are.
    pub(crate) fn is_heavy(&self) -> bool {
        self.pattern != pattern("") || [self.from, self.to, self.object].iter().any(|filter| !filter.is_empty())
    }
}

/// What was published last from a file.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct FromFile {
    pub(crate) sha256: String,
    #[sqlx(try_from = "i64")]
    pub(crate) version: u64,
}

/// A request that was answered before.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Answered {
    pub(crate) request_sha256: String,
    pub(crate) answer: String,
}

/// How long a repeat is known by its key, in seconds: 7 days.
const KEYS_S: i64 = 7 * 86_400;

/// Objects that one statement names: an import may bring a hundred thousand, and each statement takes a while to get to the
/// database and back; but `SQLite` finds each numbered parameter by going through all of them.
const ROWS_MAX: usize = 64;
/// Objects that each version of a list names.
const NAMED_MAX: i64 = 10;
/// Objects of which it is said who removed them.
const REMOVALS_MAX: usize = 500;

/// `($1, $2, $3), ($4, ...` for so many objects, each with `more` at its end.
fn rows(count: usize, more: &str) -> String {
    let row = |place: usize| format!("(${}, ${}, ${}{more})", 3 * place + 1, 3 * place + 2, 3 * place + 3);
    (0..count).map(row).collect::<Vec<_>>().join(", ")
}

fn bind_rows<'q>(sql: &'q str, objects: &[(&'q str, &'q str, &'q str)]) -> Query<'q, Any, AnyArguments> {
    // Only placeholders and a number were written into it.
    objects
        .iter()
        .fold(query(AssertSqlSafe(sql)), |query, (domain, kind, id)| query.bind(*domain).bind(*kind).bind(*id))
}

/// Writes into `table` that these objects have this version.
async fn set_versions(
    change: &mut Change,
    table: &str,
    objects: &[(&str, &str, &str)],
    version: i64,
) -> sqlx::Result<()> {
    for objects in objects.chunks(ROWS_MAX) {
        let sql = format!(
            "INSERT INTO {table} (domain, kind, id, version) VALUES {}
             ON CONFLICT (domain, kind, id) DO UPDATE SET version = excluded.version",
            rows(objects.len(), &format!(", {version}"))
        );
        bind_rows(&sql, objects).execute(&mut **change).await?;
    }
    Ok(())
}

/// Writes a version with its document, and which objects it changed; from `removed` on they are those that it removed.
async fn write_version(
    change: &mut Change,
    Version { version, sha256, author, message, published_at, carry, follows }: &Version,
    document: &str,
    objects: &[String],
    removed: usize,
) -> sqlx::Result<()> {
    let carry = serde_json::to_string(carry).map_err(|error| sqlx::Error::Encode(error.into()))?;
    query(
        "INSERT INTO policy_versions (version, document, sha256, author, message, published_at, carry, objects, follows)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(version.cast_signed())
    .bind(document)
    .bind(sha256)
    .bind(author)
    .bind(message)
    .bind(published_at)
    .bind(carry)
    .bind(i64::try_from(objects.len()).unwrap_or(i64::MAX))
    .bind(follows.cast_signed())
    .execute(&mut **change)
    .await?;
    name_objects(change, version.cast_signed(), objects, removed).await
}

/// Writes which objects this version changed; from `removed` on they are those that it removed.
async fn name_objects(change: &mut Change, version: i64, objects: &[String], removed: usize) -> sqlx::Result<()> {
    for (number, objects) in objects.chunks(ROWS_MAX).enumerate() {
        let first = number * ROWS_MAX;
        let row = |at: usize| format!("({version}, {}, ${}, {})", first + at, at + 1, u8::from(first + at >= removed));
        let rows = (0..objects.len()).map(row).collect::<Vec<_>>().join(", ");
        // Only placeholders and numbers were written into it.
        let sql = AssertSqlSafe(format!("INSERT INTO version_objects (version, place, object, removed) VALUES {rows}"));
        objects.iter().fold(query(sql), Query::bind).execute(&mut **change).await?;
    }
    Ok(())
}

impl Store {
    /// Adds the next version to `change`, and keeps both.
    pub(crate) async fn add_version(&self, mut change: Change, new: NewVersion<'_>) -> sqlx::Result<()> {
        let Version { version, sha256, author, .. } = new.version;
        let version = version.cast_signed();
        if let Some(KeptVersion { version, document, objects, touched }) = new.kept {
            write_version(&mut change, version, document, objects, touched).await?;
        }
        write_version(&mut change, new.version, new.document, new.objects, new.touched.len()).await?;
        set_versions(&mut change, "policy_revisions", new.touched, version).await?;
        set_versions(&mut change, "policy_removals", new.removed, version).await?;
        for objects in new.removed.chunks(ROWS_MAX) {
            let sql = format!(
                "DELETE FROM policy_revisions WHERE (domain, kind, id) IN (VALUES {})",
                rows(objects.len(), "")
            );
            bind_rows(&sql, objects).execute(&mut *change).await?;
        }
        let now = now();
        query("DELETE FROM publish_keys WHERE at < $1").bind(now - KEYS_S).execute(&mut *change).await?;
        if let Some((key, answered)) = new.answered {
            query(
                "INSERT INTO publish_keys (\"user\", key, request_sha256, answer, version, at)
                 VALUES ($1, $2, $3, $4, $5, $6)",
            )
            .bind(author)
            .bind(key)
            .bind(&answered.request_sha256)
            .bind(&answered.answer)
            .bind(version)
            .bind(now)
            .execute(&mut *change)
            .await?;
        }
        if let Some(file) = new.file {
            query(
                "INSERT INTO policy_files (name, sha256, version) VALUES ($1, $2, $3)
                 ON CONFLICT (name) DO UPDATE SET sha256 = excluded.sha256, version = excluded.version",
            )
            .bind(file)
            .bind(sha256)
            .bind(version)
            .execute(&mut *change)
            .await?;
        }
        Rollout::write(new.rollout, &mut change).await?;
        for line in new.audit {
            line.write(&mut change).await?;
        }
        self.announce(&mut change).await?;
        self.keep(change).await
    }

    /// This version with its document.
    pub(crate) async fn version(&self, version: u64) -> sqlx::Result<Option<(Version, String)>> {
        Version::read(&mut *self.pool.acquire().await?, version).await
    }

    /// In which versions these objects were removed, as far as they were; of the first few hundred.
    pub(crate) async fn removals(&self, objects: &[(&str, &str, &str)]) -> sqlx::Result<Vec<Revision>> {
        let objects = &objects[..objects.len().min(REMOVALS_MAX)];
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT domain, kind, id, version, author, published_at FROM policy_removals JOIN policy_versions
             USING (version) WHERE (domain, kind, id) IN (VALUES {})",
            rows(objects.len(), "")
        );
        let found = bind_rows(&sql, objects).fetch_all(&self.pool).await?;
        found.iter().map(Revision::from_row).collect()
    }

    /// What the versions after `after`, up to `last`, chose for used quota, together.
    pub(crate) async fn carries_since(&self, after: u64, last: u64) -> sqlx::Result<Carries> {
        Version::carries(&mut *self.pool.acquire().await?, after, last).await
    }

    /// What these versions changed.
    pub(crate) async fn version_objects(&self, versions: &[u64]) -> sqlx::Result<HashMap<u64, VersionObjects>> {
        if versions.is_empty() {
            return Ok(HashMap::new());
        }
        // Only numbers are written into the statements.
        let numbers = versions.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let counts = format!("SELECT version, objects FROM policy_versions WHERE version IN ({numbers})");
        let counts: Vec<(i64, Option<i64>)> = query_as(AssertSqlSafe(counts)).fetch_all(&self.pool).await?;
        let names = format!(
            "SELECT version, object, removed FROM version_objects WHERE version IN ({numbers}) AND place < {NAMED_MAX}
             ORDER BY version, place"
        );
        let names: Vec<(i64, String, i64)> = query_as(AssertSqlSafe(names)).fetch_all(&self.pool).await?;
        let count = |(version, count): (i64, Option<i64>)| {
            let count = count.map(i64::cast_unsigned);
            (version.cast_unsigned(), VersionObjects { count, first: Vec::new() })
        };
        let mut of: HashMap<u64, VersionObjects> = counts.into_iter().map(count).collect();
        for (version, object, removed) in names {
            of.entry(version.cast_unsigned()).or_default().first.push((object, removed == 1));
        }
        Ok(of)
    }

    /// At most `count` versions before `before`, newest first.
    pub(crate) async fn versions(
        &self,
        SoughtVersions { pattern, from, to, object }: SoughtVersions<'_>,
        before: u64,
        count: u32,
    ) -> sqlx::Result<Vec<Version>> {
        query_as(
            "SELECT version, sha256, author, message, published_at, carry, coalesce(follows, version - 1) AS follows
             FROM policy_versions
             WHERE version < $1 AND lower(author || ' ' || message) LIKE $2 ESCAPE '~' AND published_at >= $3 AND published_at < $4
             AND ($5 = '' OR version IN (SELECT version FROM version_objects WHERE object = $5))
             ORDER BY version DESC LIMIT $6",
        )
        .bind(i64::try_from(before).unwrap_or(i64::MAX))
        .bind(pattern)
        .bind(from)
        // After every instant, in whichever order letters are.
        .bind(if to.is_empty() { "9999" } else { to })
        .bind(object)
        .bind(i64::from(count))
        .fetch_all(&self.pool)
        .await
    }
}

/// What is read in a change, or all at one instant. The connection is that of [`Store::change`] or [`Store::reading`].
impl Version {
    /// Number of the newest version; 0 where there is none.
    pub(crate) async fn newest(connection: &mut AnyConnection) -> sqlx::Result<u64> {
        let newest: i64 =
            query_scalar("SELECT coalesce(max(version), 0) FROM policy_versions").fetch_one(connection).await?;
        Ok(newest.cast_unsigned())
    }

    /// Is this the version that was published under its number, here and not in another copy of the database?
    pub(crate) async fn is_stored(&self, connection: &mut AnyConnection) -> sqlx::Result<bool> {
        let found = query_scalar::<_, i64>(
            "SELECT 1 FROM policy_versions WHERE version = $1 AND sha256 = $2 AND published_at = $3",
        )
        .bind(self.version.cast_signed())
        .bind(&self.sha256)
        .bind(&self.published_at)
        .fetch_optional(connection);
        Ok(found.await?.is_some())
    }

    /// This version with its document.
    pub(crate) async fn read(connection: &mut AnyConnection, version: u64) -> sqlx::Result<Option<(Self, String)>> {
        let found = query(
            "SELECT version, sha256, author, message, published_at, carry, coalesce(follows, version - 1) AS follows,
             document FROM policy_versions WHERE version = $1",
        )
        .bind(i64::try_from(version).unwrap_or(i64::MAX))
        .fetch_optional(connection)
        .await?;
        found.map(|row| Ok((Self::from_row(&row)?, row.try_get("document")?))).transpose()
    }

    /// What the versions after `after`, up to `last`, chose for used quota, together: whoever forgets it has the last word.
    pub(crate) async fn carries(connection: &mut AnyConnection, after: u64, last: u64) -> sqlx::Result<Carries> {
        let columns: Vec<String> =
            query_scalar("SELECT carry FROM policy_versions WHERE version > $1 AND version <= $2 ORDER BY version")
                .bind(i64::try_from(after).unwrap_or(i64::MAX))
                .bind(i64::try_from(last).unwrap_or(i64::MAX))
                .fetch_all(connection)
                .await?;
        let mut sum = Carries::default();
        for column in columns {
            let choices = Carries::try_from(column).map_err(|error| sqlx::Error::Decode(error.into()))?;
            for (limit, choice) in choices.0.into_iter().filter(|(_, choice)| *choice != Carry::default()) {
                let sum = sum.0.entry(limit).or_insert(choice);
                *sum = if *sum == Carry::Reset { Carry::Reset } else { choice };
            }
        }
        Ok(sum)
    }
}

impl Revision {
    pub(crate) async fn read_all(connection: &mut AnyConnection) -> sqlx::Result<Vec<Self>> {
        query_as(
            "SELECT domain, kind, id, version, author, published_at FROM policy_revisions JOIN policy_versions
             USING (version)",
        )
        .fetch_all(connection)
        .await
    }
}

impl FromFile {
    /// What was published last from the file of this name.
    pub(crate) async fn read(connection: &mut AnyConnection, name: &str) -> sqlx::Result<Option<Self>> {
        query_as("SELECT sha256, version FROM policy_files WHERE name = $1").bind(name).fetch_optional(connection).await
    }
}

impl Answered {
    /// What this user's request with this key was answered.
    pub(crate) async fn read(connection: &mut AnyConnection, user: &str, key: &str) -> sqlx::Result<Option<Self>> {
        query_as("SELECT request_sha256, answer FROM publish_keys WHERE \"user\" = $1 AND key = $2")
            .bind(user)
            .bind(key)
            .fetch_optional(connection)
            .await
    }
}
