//! The page as a whole: names, types and labels against those of etcd's page, and numbers against what was done.
