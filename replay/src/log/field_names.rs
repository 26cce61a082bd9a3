//! Names of fields and their meanings: the names that nginx, Caddy, Traefik, Envoy, Cloudflare, Google, AWS and the W3C
//! extended format use, in any case, or those that `--map` gives.
//!
//! Each meaning has several names. Of those that a line has, the one that comes first here counts.

use std::{str::FromStr, sync::LazyLock};

use rustc_hash::FxHashMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    Time,
    /// A date, beside a time of the day.
    Date,
    Client,
    /// The address of a client, in an object for the client.
    ClientAddress,
    /// A list of addresses that a proxy wrote.
    Forwarded,
    /// The headers of the request; only lists of addresses in them count.
    Headers,
    User,
    /// The name of a user, in an object for the user.
    UserName,
    Method,
    Endpoint,
    /// A request line, or an object with more of these fields.
    Request,
    /// An object with more of these fields.
    Group,
    /// A whole line of another format, or its fields as an object.
    Line,
}

/// Names in lower case, separated by one space, the best first. `Endpoint` names `request_uri` before `uri`, because the
/// `uri` of nginx is the path after rewriting.
const NAMES: [(Meaning, &str); 13] = [
    (
        Meaning::Time,
        "startutc time timestamp @timestamp ts time_iso8601 msec time_local start_time edgestarttimestamp \
         startlocal datetime requesttimeepoch requesttime",
    ),
    (Meaning::Date, "date"),
    (
        Meaning::Client,
        "ip client_ip remote_addr client remote_ip remote clienthost clientaddr clientip c-ip remoteip remoteaddr \
         remote_address client_addr client_address remote_host downstream_remote_address source_ip src_ip \
         client.ip source.ip client.address source.address",
    ),
    (
        Meaning::Forwarded,
        "x_forwarded_for x-forwarded-for http_x_forwarded_for request_x-forwarded-for cs(x-forwarded-for) \
         forwarded http_forwarded x-real-ip x_real_ip http_x_real_ip",
    ),
    (Meaning::Headers, "headers request_headers"),
    (Meaning::User, "user remote_user user_id clientusername cs-username user.name user.id"),
    (Meaning::UserName, "name username id"),
    (Meaning::ClientAddress, "address"),
    (
        Meaning::Method,
        "method request_method requestmethod httpmethod http_method verb clientrequestmethod cs-method \
         http.request.method",
    ),
    (
        Meaning::Endpoint,
        "request_uri path uri endpoint url requestpath request_path requesturl clientrequestpath clientrequesturi \
         cs-uri-stem cs-uri resourcepath x-envoy-origin-path url.path url.original original",
    ),
    (Meaning::Request, "request httprequest request_line"),
    (Meaning::Group, "http source attributes"),
    (Meaning::Line, "log line textpayload event.original _raw message jsonpayload"),
];

const NAME_BYTES_MAX: usize = 32;

/// The meaning of a name, and its rank in the list of its meaning: less is better.
pub(crate) type NameMeaning = (Meaning, usize);

/// Returns the meaning of a field with this name.
pub(crate) fn meaning(name: &str) -> Option<NameMeaning> {
    static TABLE: LazyLock<FxHashMap<&[u8], NameMeaning>> = LazyLock::new(|| {
        let with_places = |(meaning, names): (Meaning, &'static str)| {
            names.split(' ').enumerate().map(move |(place, name)| (name.as_bytes(), (meaning, place)))
        };
        NAMES.into_iter().flat_map(with_places).collect()
    });
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    TABLE.get(&*lower).copied()
}

/// Names of fields for logs that do not use the known ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldMap {
    pub(crate) names: Vec<(Meaning, String)>,
}

impl FieldMap {
    pub(crate) fn set(&mut self, meaning: Meaning, name: &str) {
        self.names.retain(|(known, _)| *known != meaning);
        self.names.push((meaning, name.to_owned()));
    }
}

impl FromStr for FieldMap {
    type Err = String;

    /// Reads `client=FIELD,method=FIELD,...`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut map = Self::default();
        for pair in text.split(',') {
            let (what, name) = pair.split_once('=').unwrap_or((pair, ""));
            let meaning = match what.trim() {
                "client" => Some(Meaning::Client),
                "method" => Some(Meaning::Method),
                "path" => Some(Meaning::Endpoint),
                "time" => Some(Meaning::Time),
                "user" => Some(Meaning::User),
                // No limit depends on it.
                "status" => None,
                other => {
                    return Err(format!("`{other}` is not known; client, method, path, time, user and status are"));
                }
            };
            if name.trim().is_empty() {
                return Err(format!("`{pair}` names no field; write {}=FIELD", what.trim()));
            }
            if let Some(meaning) = meaning {
                map.set(meaning, name.trim());
            }
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (meaning_of, names) in NAMES {
            for (place, name) in names.split(' ').enumerate() {
                assert_eq!(meaning(name), Some((meaning_of, place)), "{name}");
                assert_eq!(meaning(&name.to_uppercase()), Some((meaning_of, place)), "{name}");
            }
        }
        assert_eq!((meaning("other"), meaning(&"x".repeat(99))), (None, None));
    }

    #[test]
    fn a_map_of_fields_that_is_wrong_is_named() {
        let map: FieldMap = "client=peer.addr, path=u,status=s".parse().expect("right");
        assert_eq!(map.names, [(Meaning::Client, "peer.addr".to_owned()), (Meaning::Endpoint, "u".to_owned())]);
        for (text, why) in [("peer", "`peer` is not known"), ("client=", "names no field"), ("", "`` is not known")] {
            let refused = text.parse::<FieldMap>().expect_err(text);
            assert!(refused.contains(why), "{refused}");
        }
    }
}
