//! Messages, services and clients as they are generated from `proto/`: a module for each package.

tonic::include_proto!("packages");

/// The descriptors of all services, for the reflection service.
pub(crate) const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("descriptors");
