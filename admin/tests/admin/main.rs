//! The admin server over real sockets, each test with a database of its own.

mod access;
mod clients;
mod documentation;
mod drafts;
mod explain;
mod files;
mod home;
mod objects;
mod page;
mod postgres;
mod publishing;
mod setup;
mod simulations;
mod sqlite;
mod storage;
mod stream;
mod support;
mod two_servers;
mod versions;
