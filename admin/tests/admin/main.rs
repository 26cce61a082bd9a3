//! The admin server over real sockets, each test with a database of its own.

mod access;
mod alerts;
mod clients;
mod documentation;
mod documented;
mod drafts;
mod explain;
mod figures;
mod files;
mod health;
mod home;
mod lists;
mod objects;
mod page;
mod permissions;
mod postgres;
mod publishing;
mod setup;
mod simulations;
mod sqlite;
mod storage;
mod stream;
mod support;
mod tokens;
mod two_servers;
mod versions;
