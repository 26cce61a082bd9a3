//! The plan of a request: which limits of a snapshot it meets, and in which order.

pub(crate) use crate::policy::compiled::{Charge, Plan};
