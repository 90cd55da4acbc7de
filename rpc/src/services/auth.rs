//! Users, roles and permissions: off, and not to be turned on yet.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::context::Context;
use super::unsupported::service;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::auth_server::Auth;

/// The service `etcdserverpb.Auth`.
#[derive(Debug)]
pub(crate) struct AuthService {
    context: Arc<Context>,
}

impl AuthService {
    /// The service over a keyspace.
    pub(crate) fn new(context: Arc<Context>) -> AuthService {
        AuthService { context }
    }
}

/// The revision of users and roles that never changed.
const AUTH_REVISION: u64 = 1;

service! {
    impl Auth for AuthService {
        async fn auth_status(&self, _: Request<pb::AuthStatusRequest>) -> Result<Response<pb::AuthStatusResponse>, Status> {
            let header = self.context.header_now();
            Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: AUTH_REVISION }))
        }
    }
    unsupported {
        "AuthEnable" auth_enable(AuthEnableRequest) -> pb::AuthEnableResponse;
        "AuthDisable" auth_disable(AuthDisableRequest) -> pb::AuthDisableResponse;
        "Authenticate" authenticate(AuthenticateRequest) -> pb::AuthenticateResponse;
        "UserAdd" user_add(AuthUserAddRequest) -> pb::AuthUserAddResponse;
        "UserGet" user_get(AuthUserGetRequest) -> pb::AuthUserGetResponse;
        "UserList" user_list(AuthUserListRequest) -> pb::AuthUserListResponse;
        "UserDelete" user_delete(AuthUserDeleteRequest) -> pb::AuthUserDeleteResponse;
        "UserChangePassword" user_change_password(AuthUserChangePasswordRequest) -> pb::AuthUserChangePasswordResponse;
        "UserGrantRole" user_grant_role(AuthUserGrantRoleRequest) -> pb::AuthUserGrantRoleResponse;
        "UserRevokeRole" user_revoke_role(AuthUserRevokeRoleRequest) -> pb::AuthUserRevokeRoleResponse;
        "RoleAdd" role_add(AuthRoleAddRequest) -> pb::AuthRoleAddResponse;
        "RoleGet" role_get(AuthRoleGetRequest) -> pb::AuthRoleGetResponse;
        "RoleList" role_list(AuthRoleListRequest) -> pb::AuthRoleListResponse;
        "RoleDelete" role_delete(AuthRoleDeleteRequest) -> pb::AuthRoleDeleteResponse;
        "RoleGrantPermission" role_grant_permission(AuthRoleGrantPermissionRequest) -> pb::AuthRoleGrantPermissionResponse;
        "RoleRevokePermission" role_revoke_permission(AuthRoleRevokePermissionRequest) -> pb::AuthRoleRevokePermissionResponse;
    }
}
