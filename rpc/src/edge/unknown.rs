//! Calls of methods that do not exist, answered as clients of etcd expect: they find out what a server can do this way.

use tonic::Status;

/// The services and the methods of each.
pub(crate) type Methods = [(&'static str, &'static [&'static str])];

/// Refuses the path of a call that no service answers.
pub(super) fn check(path: &str, methods: &Methods) -> Result<(), Status> {
    let name = path.strip_prefix('/').unwrap_or(path);
    let Some((service, method)) = name.rsplit_once('/') else {
        return Err(Status::unimplemented(format!("malformed method name: {path:?}")));
    };
    match methods.iter().find(|(known, _)| *known == service) {
        None => Err(Status::unimplemented(format!("unknown service {service}"))),
        Some((_, known)) if known.contains(&method) => Ok(()),
        Some(_) => Err(Status::unimplemented(format!("unknown method {method} for service {service}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[track_caller]
    fn check_refused(path: &str, expected: &str) {
        let status = check(path, &[("a.KV", &["Get"])]).expect_err(path);
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, expected));
    }

    #[test]
    fn a_call_that_nobody_answers_is_named() {
        check_refused("/a.KV/Put", "unknown method Put for service a.KV");
        check_refused("/a.KV/", "unknown method  for service a.KV");
        check_refused("/a.Other/Get", "unknown service a.Other");
        check_refused("/a/b/Get", "unknown service a/b");
        check_refused("/Get", "malformed method name: \"/Get\"");
    }

    #[test]
    fn a_known_method_passes() {
        assert!(check("/a.KV/Get", &[("a.KV", &["Get"])]).is_ok());
    }
}
