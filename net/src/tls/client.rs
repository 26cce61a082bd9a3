//! TLS of a client: the authorities that it trusts, and the certificate that it shows.

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

/// The authorities that a client trusts, and its own certificate. Without an authority it trusts no server.
#[derive(Clone, Copy, Debug)]
pub struct ClientTls<'p> {
    /// Trusts the authorities of the machine.
    pub machine: bool,
    /// PEM: further authorities.
    pub authorities: Option<&'p [u8]>,
    /// The certificate for servers that ask for one.
    pub own: Option<OwnCertificate<'p>>,
}

/// A certificate and its key.
#[derive(Clone, Copy)]
pub struct OwnCertificate<'p> {
    /// PEM: the certificate, and those that lead from it to one that the server knows.
    pub certificate: &'p [u8],
    /// PEM: its key.
    pub key: &'p [u8],
}

impl fmt::Debug for OwnCertificate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificate")
    }
}

impl ClientTls<'_> {
    /// Returns the configuration for connections.
    ///
    /// # Errors
    ///
    /// Something is no certificate, or no key.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let mut roots = RootCertStore::empty();
        if self.machine {
            // Single certificates that cannot be read are skipped.
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
        let Some(OwnCertificate { certificate, key }) = self.own else { return Ok(config.with_no_client_auth()) };
        let chain = certificates(OWN, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| no_pem("the client's key", &error))?;
        config.with_client_auth_cert(chain, key).map_err(|error| of(OWN, error))
    }
}

/// Returns the configuration of a process that connects to its own listener. The certificate is not verified: no other process
/// has that socket, and the certificate may be for another name than the address.
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

/// Accepts every server that has the key of the certificate that it shows.
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
