//! Tests of limits that nodes share through Redis or Valkey, over real servers. The nodes are engines of the test's
//! process.

mod clusters;
mod failovers;
mod fault_codes;
mod histories;
mod layers;
mod leases_and_views;
mod load;
mod nodes;
mod operator_queries;
mod outages;
mod permissions;
mod prefix;
mod replicas;
mod script;
mod secret;
mod sentinels;
mod start;
mod strict;
mod tls;
