//! Certificates of tests.

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

    /// Writes a certificate of this machine, and its key.
    pub(crate) fn write(&self, certificate: &Path, key: &Path) {
        let own = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let signed = params.signed_by(&own, &self.issuer).expect("a certificate");
        fs::write(certificate, signed.pem()).expect("room for a file");
        fs::write(key, own.serialize_pem()).expect("room for a file");
    }
}
