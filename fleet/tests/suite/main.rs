//! Tests of limits that nodes share through Redis or Valkey, over real servers. The nodes are engines of the test's
//! process.

mod ahead;
mod clusters;
mod faults;
mod histories;
mod layers;
mod load;
mod nodes;
mod people;
mod permissions;
mod prefix;
mod refusals;
mod replicas;
mod script;
mod secret;
mod sentinels;
mod start;
mod strict;
mod tls;
