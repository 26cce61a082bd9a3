//! Certificates, signed by an authority of the test's own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority that signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority itself.
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
        // Of another name than what it signs, which OpenSSL takes for self-signed otherwise.
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
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

/// Files with an authority, a certificate of this machine that it signed, and its key, until this is dropped.
#[derive(Debug)]
pub struct CertificateFiles {
    folder: TempDir,
}

impl CertificateFiles {
    /// Writes the files.
    ///
    /// # Panics
    ///
    /// The files cannot be written.
    #[must_use]
    pub fn of(authority: &Authority) -> Self {
        let files = Self { folder: TempDir::new().expect("a folder") };
        fs::write(files.authority(), &authority.pem).expect("room for a file");
        authority.write(&files.certificate(), &files.key());
        files
    }

    /// Returns the file of the authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns the file of the certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    /// Returns the file of the key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
