//! TLS at the listener: a certificate and its key from two files, which are taken anew when they change. Connections that are
//! open go on; what cannot be used keeps what was there before.

use std::{
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

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
    /// SHA-256 of what was in them when they were looked at last.
    seen: String,
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
        Ok(Self { files, seen: contents.sha256(), current: Arc::new(Current(RwLock::new(Arc::new(key)))) })
    }

    /// For the listener.
    pub(crate) fn config(&self) -> io::Result<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::new(provider())).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_no_client_auth();
        Ok(config.with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>))
    }

    /// Follows the files, for ever.
    pub(crate) async fn follow(mut self) -> Infallible {
        loop {
            time::sleep(EVERY).await;
            let files = self.files.clone();
            // A file that is being replaced may be absent for a moment; a new one that stays away is told of by whoever
            // cannot read it any more at the next start.
            let Ok(Ok(now)) = spawn_blocking(move || files.read()).await else { continue };
            let seen = now.sha256();
            if seen == self.seen {
                continue;
            }
            match self.files.load(&now) {
                Ok(key) => {
                    *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                    tracing::info!(certificate = %self.files.certificate.display(), "a new certificate is in use");
                }
                Err(why) => tracing::error!(why, "the new certificate cannot be used; the one of before stays in use"),
            }
            self.seen = seen;
        }
    }
}
