//! TLS at the listener: a certificate and its key from two files, which are taken anew when they change. Connections that are
//! open go on; what cannot be used keeps what was there before.

use std::{
    convert::Infallible,
    fs, io, mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{task::spawn_blocking, time};

use crate::{start::StartError, store::sha256};

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(2);

/// Where a certificate lies.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM: the certificate, and those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// PEM: its key.
    pub key: PathBuf,
}

/// What the files hold.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    fn sha256(&self) -> String {
        sha256(format!("{} {}", sha256(&self.certificate), sha256(&self.key)))
    }
}

/// The certificate that connections are begun with.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A certificate in use, and the files that it comes from.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    /// SHA-256 of what is in use.
    used: String,
    /// Could they be read when they were looked at last?
    is_read: bool,
    current: Arc<Current>,
}

impl TlsFiles {
    fn read(&self) -> Result<Contents, String> {
        let read = |path: &Path| fs::read(path).map_err(|error: io::Error| format!("{}: {error}", path.display()));
        Ok(Contents { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn load(&self, contents: &Contents) -> Result<CertifiedKey, String> {
        let of = |path: &Path, why: &dyn ToString| format!("{}: {}", path.display(), why.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents.certificate).collect();
        let chain = chain.map_err(|error| of(&self.certificate, &error))?;
        if chain.is_empty() {
            return Err(of(&self.certificate, &"there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| of(&self.key, &error))?;
        CertifiedKey::from_der(chain, key, &provider()).map_err(|error| of(&self.certificate, &error))
    }
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> Result<Self, StartError> {
        let failed = |why| StartError::Tls { why };
        let contents = files.read().map_err(failed)?;
        let key = files.load(&contents).map_err(failed)?;
        Ok(Self {
            files,
            used: contents.sha256(),
            is_read: true,
            current: Arc::new(Current(RwLock::new(Arc::new(key)))),
        })
    }

    /// For the listener.
    pub(crate) fn config(&self) -> io::Result<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::new(provider())).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_no_client_auth();
        Ok(config.with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>))
    }

    /// Follows the files, for ever.
    pub(crate) async fn follow(mut self, trouble: &Trouble) -> Infallible {
        loop {
            time::sleep(EVERY).await;
            self.look(trouble).await;
        }
    }

    async fn look(&mut self, trouble: &Trouble) {
        let files = self.files.clone();
        let Ok(read) = spawn_blocking(move || files.read()).await else { return };
        // A file that is being replaced may be absent for a moment.
        let was_read = mem::replace(&mut self.is_read, read.is_ok());
        if read.is_ok() || !was_read {
            trouble.tell(read.and_then(|now| self.take(&now)).err());
        }
    }

    /// Takes what is in the files, if it is new; says why it cannot be used.
    fn take(&mut self, now: &Contents) -> Result<(), String> {
        let sha256 = now.sha256();
        if sha256 != self.used {
            let key = self.files.load(now)?;
            *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
            self.used = sha256;
            tracing::info!(certificate = %self.files.certificate.display(), "a new certificate is in use");
        }
        Ok(())
    }
}

/// What is wrong with the files of the certificate, and since when, if anything is.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<Option<(Timestamp, String)>>);

impl Trouble {
    pub(crate) fn now(&self) -> Option<(Timestamp, String)> {
        self.lock().clone()
    }

    /// The log says what is wrong once, and once that it is well again.
    fn tell(&self, wrong: Option<String>) {
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
        let files = TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        write(&files);
        let mut tls = Tls::open(files.clone()).expect("it is good");
        let trouble = Trouble::default();
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
