//! Certificates of tests, of every crate.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Somebody who signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate of this machine, and its key; PEM.
    pub(crate) fn sign(&self) -> (String, String) {
        let own = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        (params.signed_by(&own, &self.issuer).expect("a certificate").pem(), own.serialize_pem())
    }

    /// Writes such ones.
    pub(crate) fn write(&self, certificate: &Path, key: &Path) {
        let (signed, its_key) = self.sign();
        fs::write(certificate, signed).expect("room for a file");
        fs::write(key, its_key).expect("room for a file");
    }
}
