/** The users of the tenant, and to delete all that is of one. */
import { api, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { to } from "../../route";
import { me } from "../../session";
import { ConfirmButton } from "../../ui/form";
import { paged, useListing } from "../../ui/load";
import { Table, type Column } from "../../ui/table";
import { tell } from "../../ui/toast";
import { count } from "../../ui/values";
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
  const columns: Column<User>[] = [
    { name: "user", head: t("ops.user"), cell: (row) => <bdi>{row.id}</bdi>, width: "2fr" },
    { name: "threads", head: t("ops.threads"), cell: (row) => count(row.threads), numeric: true, width: "8rem" },
    {
      name: "more",
      head: "",
      wide: true,
      width: "16rem",
      cell: (row) => (
        <span class="actions">
          <a href={to(["operations", "keys"], { user: row.id })}>{t("ops.keys")}</a>
          <a href={to(["operations", "audit"], { user: row.id })}>{t("ops.audit")}</a>
        </span>
      ),
    },
    {
      name: "do",
      head: "",
      width: "7rem",
      cell: (row) =>
        row.id !== me.value?.user && (
          <ConfirmButton kind="ghost" label={`${t("do.delete")}: ${row.id}`} title={t("ops.deleteUser")} text={t("ops.deleteUserText")} name={row.id} onYes={() => remove(row)}>
            {t("do.delete")}
          </ConfirmButton>
        ),
    },
  ];
  return <Table label={t("ops.users")} columns={columns} listing={listing} />;
}
