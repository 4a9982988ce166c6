/** The users of the tenant, and to delete all that is of one. */
import { api, data, type Listed } from "../../api";
import { to } from "../../route";
import { me } from "../../session";
import { acts, ConfirmButton, count, paged, Table, tell, useListing, type Column } from "../../ui";
import { t } from "../../words";

type User = Listed<"/v1/users">;

export function Users() {
  const listing = useListing<User>((after) => data(api.GET("/v1/users", { params: { query: paged(after) } })), []);
  const remove = async (user: User) => {
    const { counts } = await data(api.DELETE("/v1/users/{user_id}", { params: { path: { user_id: user.id } } }));
    const gone = Object.entries(counts).filter(([, n]) => n > 0);
    tell(`${t("ops.deleted", { name: user.id })} ${gone.map(([name, n]) => `${name}: ${n}`).join(", ")}`);
    listing.reload();
  };
  const links = (user: User) => (
    <span class="actions">
      <a href={to(["operations", "keys"], { user: user.id })}>{t("ops.keys")}</a>
      <a href={to(["operations", "audit"], { user: user.id })}>{t("ops.audit")}</a>
    </span>
  );
  const columns: Column<User>[] = [
    { head: t("is.user"), cell: (row) => <bdi>{row.id}</bdi>, width: "2fr" },
    { head: t("ops.threads"), cell: (row) => count(row.threads), numeric: true, width: "8rem" },
    { ...acts("16rem", links), wide: true },
    acts("7rem", (row) => row.id !== me.value?.user && <ConfirmButton of={row.id} on={t("do.delete")} title={t("ops.deleteUser")} text={t("ops.deleteUserText")} name={row.id} onYes={() => remove(row)} />),
  ];
  return <Table label={t("ops.users")} columns={columns} listing={listing} />;
}
