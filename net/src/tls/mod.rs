//! TLS of a listener: a certificate and its key from two files, and the authorities of client certificates from a
//! third. The files are read again when they change. Open connections go on; files that cannot be used leave the
//! previous ones in force. [`ClientTls`] is the other side.

use std::{
    convert::Infallible,
    error, fmt, fs, io, mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error as RustlsError, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use tokio::{task::spawn_blocking, time};

mod client;

pub use client::{ClientTls, OwnCertificate, to_oneself};

/// The time between two reads of the files.
const EVERY: Duration = Duration::from_secs(2);

/// The files of a listener's certificate.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM: the certificate, and those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// PEM: its key.
    pub key: PathBuf,
    /// PEM: the authorities of the certificates that clients have to show, if they have to (mutual TLS). There are no revocation
    /// lists: an authority is removed as a whole.
    pub clients: Option<PathBuf>,
}

/// An error in a certificate, a key or an authority: which of them, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for TlsError {}

/// The contents of the files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    clients: Option<Vec<u8>>,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contents")
    }
}

/// The certificate and the authorities that new connections use.
#[derive(Debug)]
struct Current(RwLock<InUse>);

#[derive(Clone, Debug)]
struct InUse {
    key: Arc<CertifiedKey>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Current {
    fn now(&self) -> InUse {
        // Nothing panics while it is held.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now().key)
    }
}

/// Delegates to the verifier in use, at each connection.
impl ClientCertVerifier for Current {
    /// Returns no hints: the authorities may change.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, RustlsError> {
        self.now().clients.verify_client_cert(certificate, chain, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.now().clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.now().clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.now().clients.supported_verify_schemes()
    }
}

/// A certificate in use, and the files that it comes from. The files are used together or not at all: while one of them cannot
/// be used, none is taken, and [`CertificateFault`] says so.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    used: Contents,
    /// Whether the files could be read last time.
    is_read: bool,
    current: Arc<Current>,
}

impl TlsFiles {
    fn read(&self) -> Result<Contents, TlsError> {
        let read = |path: &Path| fs::read(path).map_err(|error: io::Error| of(path.display(), error));
        let clients = self.clients.as_deref().map(read).transpose()?;
        Ok(Contents { certificate: read(&self.certificate)?, key: read(&self.key)?, clients })
    }

    fn load(&self, contents: &Contents) -> Result<InUse, TlsError> {
        let chain = certificates(self.certificate.display(), &contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| no_pem(self.key.display(), &error))?;
        let key =
            CertifiedKey::from_der(chain, key, &provider()).map_err(|error| of(self.certificate.display(), error))?;
        let clients = match self.clients.as_deref().zip(contents.clients.as_deref()) {
            None => WebPkiClientVerifier::no_client_auth(),
            Some((path, contents)) => {
                let mut signers = RootCertStore::empty();
                for signer in certificates(path.display(), contents)? {
                    signers.add(signer).map_err(|error| of(path.display(), error))?;
                }
                WebPkiClientVerifier::builder_with_provider(Arc::new(signers), Arc::new(provider()))
                    .build()
                    .map_err(|error| of(path.display(), error))?
            }
        };
        Ok(InUse { key: Arc::new(key), clients })
    }
}

fn certificates(what: impl fmt::Display, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Err(error) => Err(no_pem(what, &error)),
        Ok(none) if none.is_empty() => Err(of(what, "there is no certificate in it")),
        Ok(certificates) => Ok(certificates),
    }
}

fn of(what: impl fmt::Display, why: impl fmt::Display) -> TlsError {
    TlsError(format!("{what}: {why}"))
}

/// Returns what is wrong with PEM. The library's own words may repeat a line of it, and with it a key.
fn no_pem(what: impl fmt::Display, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::NoItemsFound => "there is no key in it",
        pem::Error::Base64Decode(_) => "it is damaged: between its BEGIN and END lines is no base64",
        _ => "it is no PEM: a line -----BEGIN ...-----, lines of base64, and a line -----END ...-----",
    };
    of(what, why)
}

/// Makes ring the provider of this process, unless it has one: for libraries that take none with a connection.
pub fn install_provider() {
    // Another one does as well.
    let _ = provider().install_default();
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or not be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let used = files.read()?;
        let current = Arc::new(Current(RwLock::new(files.load(&used)?)));
        Ok(Self { files, used, is_read: true, current })
    }

    /// Returns the configuration for the listener.
    ///
    /// # Errors
    ///
    /// The library has no version of TLS to offer.
    pub fn config(&self) -> io::Result<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::new(provider())).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?;
        let resolver = Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>;
        if self.files.clients.is_none() {
            return Ok(config.with_no_client_auth().with_cert_resolver(resolver));
        }
        let clients = Arc::clone(&self.current) as Arc<dyn ClientCertVerifier>;
        let mut config = config.with_client_cert_verifier(clients).with_cert_resolver(resolver);
        // A session that is resumed is not verified again: none is, so that a signer who is taken out is out.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Reads the files again and again, for ever.
    pub async fn follow(self, fault: &CertificateFault) -> Infallible {
        self.follow_every(EVERY, fault).await
    }

    /// Reads the files again and again, this long after the last time.
    pub async fn follow_every(mut self, period: Duration, fault: &CertificateFault) -> Infallible {
        loop {
            time::sleep(period).await;
            self.look(fault).await;
        }
    }

    async fn look(&mut self, fault: &CertificateFault) {
        let files = self.files.clone();
        let Ok(read) = spawn_blocking(move || files.read()).await else { return };
        // A file that is being replaced may be absent for a moment.
        let was_read = mem::replace(&mut self.is_read, read.is_ok());
        if read.is_ok() || !was_read {
            fault.record(read.and_then(|now| self.take(now)).err().map(|error| error.0));
        }
    }

    /// Uses the contents of the files, if they are new. Fails if they cannot be used.
    fn take(&mut self, now: Contents) -> Result<(), TlsError> {
        if now != self.used {
            let in_use = self.files.load(&now)?;
            *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = in_use;
            self.used = now;
            tracing::info!(certificate = %self.files.certificate.display(), "the files of the certificate are in use as they are now");
        }
        Ok(())
    }
}

/// The present fault of the certificate's files, and since when it is there.
#[derive(Debug, Default)]
pub struct CertificateFault(Mutex<Option<(Timestamp, String)>>);

impl CertificateFault {
    /// Returns since when there is a fault, and what it is.
    #[must_use]
    pub fn now(&self) -> Option<(Timestamp, String)> {
        self.lock().clone()
    }

    /// Logs a new fault once, and its end once.
    fn record(&self, wrong: Option<String>) {
        let mut told = self.lock();
        match (&mut *told, wrong) {
            (Some((_, told)), Some(why)) if *told == why => {}
            (_, Some(why)) => {
                tracing::error!(why, "the files of the certificate cannot be used; the one of before stays in use");
                let since = told.as_ref().map_or_else(Timestamp::now, |(since, _)| *since);
                *told = Some((since, why));
            }
            (Some(_), None) => {
                tracing::info!("the files of the certificate can be used again");
                *told = None;
            }
            (None, None) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Timestamp, String)>> {
        // Nothing in here panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;

    use super::*;

    fn write(files: &TlsFiles) {
        let key = KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        fs::write(&files.certificate, params.self_signed(&key).expect("a certificate").pem()).expect("room for a file");
        fs::write(&files.key, key.serialize_pem()).expect("room for a file");
    }

    #[tokio::test]
    async fn what_is_wrong_with_the_files_is_told_until_it_is_well_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let files =
            TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem"), clients: None };
        write(&files);
        let mut tls = Tls::open(files.clone()).expect("it is good");
        let trouble = CertificateFault::default();
        tls.look(&trouble).await;
        assert_eq!(trouble.now(), None);
        fs::remove_file(&files.certificate).expect("it is there");
        tls.look(&trouble).await;
        assert_eq!(trouble.now(), None, "for a moment");
        tls.look(&trouble).await;
        let (since, why) = trouble.now().expect("it is told");
        assert!(why.contains("cert.pem"), "{why}");
        fs::write(&files.certificate, "nonsense").expect("room for a file");
        tls.look(&trouble).await;
        let (still, why) = trouble.now().expect("it is told");
        assert!(since == still && why.contains("there is no certificate in it"), "{why}");
        write(&files);
        tls.look(&trouble).await;
        assert_eq!(trouble.now(), None);
    }
}
