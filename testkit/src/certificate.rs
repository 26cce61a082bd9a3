//! Certificates, signed by an authority of the test's own.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// An authority that signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

impl Authority {
    /// Makes an authority that no other one knows.
    ///
    /// # Panics
    ///
    /// The system has no random numbers.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns a certificate of this machine (127.0.0.1), and its key, as PEM.
    ///
    /// # Panics
    ///
    /// The system has no random numbers.
    #[must_use]
    pub fn sign(&self) -> (String, String) {
        let own = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        (params.signed_by(&own, &self.issuer).expect("a certificate").pem(), own.serialize_pem())
    }

    /// Writes a certificate of this machine and its key into these files.
    ///
    /// # Panics
    ///
    /// The files cannot be written.
    pub fn write(&self, certificate: &Path, key: &Path) {
        let (signed, its_key) = self.sign();
        fs::write(certificate, signed).expect("room for a file");
        fs::write(key, its_key).expect("room for a file");
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
