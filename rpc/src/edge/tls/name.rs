//! The common name in a certificate: whom it is for.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use yasna::models::ObjectIdentifier;
use yasna::tags::{TAG_IA5STRING, TAG_PRINTABLESTRING, TAG_UTF8STRING};

/// Who a client is by its certificate, which was verified; an extension of every request of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientName(pub(crate) Arc<str>);

const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];

/// The last common name of a certificate's subject, if it is there and is text.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let subject = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| writer.next().write_der(certificate.subject()));
    });
    let attributes = yasna::parse_der(&subject, |name| {
        name.collect_sequence_of(|set| {
            set.collect_set_of(|pair| {
                pair.read_sequence(|pair| Ok((pair.next().read_oid()?, pair.next().read_tagged_der()?)))
            })
        })
    });
    let wanted = ObjectIdentifier::from_slice(&COMMON_NAME);
    let (_, value) = attributes.ok()?.into_iter().flatten().rfind(|(kind, _)| *kind == wanted)?;
    let is_text = [TAG_UTF8STRING, TAG_PRINTABLESTRING, TAG_IA5STRING].contains(&value.tag());
    let text = String::from_utf8(value.value().to_vec()).ok()?;
    (is_text && !text.is_empty()).then_some(text)
}
