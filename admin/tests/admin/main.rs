//! The admin server over real sockets, each test with a database of its own.

mod access;
mod clients;
mod documentation;
mod drafts;
mod explain;
mod objects;
mod page;
mod publishing;
mod setup;
mod storage;
mod stream;
mod support;
mod versions;
