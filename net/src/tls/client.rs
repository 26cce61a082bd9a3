//! TLS of whoever asks a server: whom he believes, and what he shows.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::{TlsError, certificates, no_pem, of, provider};

const AUTHORITY: &str = "the certificate of the authority";
const OWN: &str = "the client's certificate";

/// Whom a client believes that it is the server, and who he is himself. Without an authority he believes nobody.
#[derive(Clone, Copy, Debug)]
pub struct ClientTls<'p> {
    /// Those that the machine trusts.
    pub machine: bool,
    /// PEM: authorities besides these.
    pub authorities: Option<&'p [u8]>,
    /// What he shows to a server that asks for it.
    pub own: Option<Own<'p>>,
}

/// A certificate and its key.
#[derive(Clone, Copy)]
pub struct Own<'p> {
    /// PEM: the certificate, and those that lead from it to one that the server knows.
    pub certificate: &'p [u8],
    /// PEM: its key.
    pub key: &'p [u8],
}

impl fmt::Debug for Own<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}

impl ClientTls<'_> {
    /// For connections.
    ///
    /// # Errors
    ///
    /// Something is no certificate, or no key.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let mut roots = RootCertStore::empty();
        if self.machine {
            // Single ones that cannot be read are nobody's business.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if let Some(pem) = self.authorities {
            for authority in certificates(AUTHORITY, pem)? {
                roots.add(authority).map_err(|error| of(AUTHORITY, error))?;
            }
        }
        if self.machine && roots.is_empty() {
            return Err(TlsError("no certificates to know servers by on this machine; name an authority".to_owned()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(provider())).with_safe_default_protocol_versions();
        let config = config.map_err(|error| of("TLS", error))?.with_root_certificates(roots);
        let Some(Own { certificate, key }) = self.own else { return Ok(config.with_no_client_auth()) };
        let chain = certificates(OWN, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| no_pem("the client's key", &error))?;
        config.with_client_auth_cert(chain, key).map_err(|error| of(OWN, error))
    }
}

/// For a process that asks its own listener, whose certificate is not looked at: nobody else has that socket, and it may be of
/// another name than the address.
///
/// # Errors
///
/// The library has no version of TLS to offer.
pub fn to_oneself() -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let anyone = Arc::new(Anyone(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let config = config.map_err(|error| of("TLS", error))?;
    Ok(config.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth())
}

/// Whoever has the key of the certificate that he shows.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
