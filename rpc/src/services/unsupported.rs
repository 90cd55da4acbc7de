//! The answer of methods that are not carried out yet.

/// Implements a service trait from the methods given in full, and from a list of those that answer `Unimplemented`.
macro_rules! service {
    (
        impl $service:ident for $type:ty { $($given:tt)* }
        unsupported { $($call:literal $method:ident($request:ident) -> $response:ty;)* }
    ) => {
        #[tonic::async_trait]
        impl $service for $type {
            $($given)*

            $(async fn $method(&self, _: tonic::Request<pb::$request>) -> Result<tonic::Response<$response>, tonic::Status> {
                Err(crate::status::unsupported($call))
            })*
        }
    };
}

pub(super) use service;
