/** Presses of buttons, as the browser makes them. */
import { expect, test } from './fixtures.ts';

test('a press is a click when the page moves under it, and none when it is dragged off', async ({
  admin,
}) => {
  await admin.goto('/inspect');
  const button = admin.getByRole('button', { name: 'Add an identity' });
  const values = admin.getByLabel('Value', { exact: true });
  const press = async () => {
    await button.hover();
    await admin.mouse.down();
  };
  await expect(values).toHaveCount(1);
  await press();
  await admin.evaluate(() => document.querySelector('#content')?.prepend(document.createElement('hr')));
  await admin.locator('#content > hr').evaluate((line) => (line.style.height = '200px'));
  await admin.mouse.up();
  await expect(values).toHaveCount(2);
  await press();
  await admin.mouse.move(5, 5);
  await admin.mouse.up();
  await expect(button).toBeVisible();
  await expect(values).toHaveCount(2);
});
