//! The query of an address, read once into a type that cannot be wrong.

use std::{
    future::{Ready, ready},
    ops::Deref,
};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use serde::de::DeserializeOwned;
use serde_urlencoded::Deserializer;

use crate::problem::Problem;

/// The parameters of a call. Those of its fields are all that it takes: `api` refuses others by name.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request.query_string()).map(Self))
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Deserializer::new(form(query))).map_err(|error| {
        let name = match error.path().to_string() {
            // Of the whole: one is missing, or stands there twice; the message names it.
            whole if whole == "." => error.inner().to_string().split('`').nth(1).unwrap_or_default().to_owned(),
            name => name,
        };
        Problem::parameter(name.clone(), format!("{name}: {}", error.inner()))
    })
}

fn form(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

/// What is wrong with a query that has other parameters than the known ones.
pub(crate) fn unknown(query: &str, known: &[String]) -> Option<Problem> {
    let (name, _) = form(query).find(|(name, _)| !known.iter().any(|known| known == name))?;
    let hint = match known {
        [] => "this call takes none".to_owned(),
        known => format!("this call takes {}", known.join(", ")),
    };
    Some(Problem::parameter(name.clone(), format!("there is no parameter `{name}`; {hint}")))
}
